    push rbp
    push r15
    push r14
    push rbx
    push rax
    mov r10,r8
    mov r14d,ecx
    mov rbx,rdi
    mov r8,QWORD PTR [rsp+0x30]
    mov r11d,DWORD PTR [rsi+0xd8]
    mov ecx,DWORD PTR [rsi+0xdc]
    mov rax,QWORD PTR [rsi+0x40]
    mov eax,DWORD PTR [rax]
    lea rdi,[r9-0x1]
    cmp rdi,QWORD PTR [rsi+0xa8]
    jae 6
    test al,0x1
    je 6
    cmp DWORD PTR [rsi+0xe0],r11d
    js 6
    mov edi,DWORD PTR [rsi+0xd0]
    mov eax,edi
    and eax,r11d
    shl rax,0x6
    add rax,QWORD PTR [rsi+0x38]
    bswap rdx
    bswap r14d
    mov QWORD PTR [rax+0x10],rdx
    mov QWORD PTR [rax+0x18],r14
    mov edx,r9d
    or edx,0x80000000
    bswap edx
    mov DWORD PTR [rax+0x20],edx
    cmp r9,0x7
    jbe 1
    mov rdx,QWORD PTR [r9+r10*1-0x8]
    mov QWORD PTR [rax+r9*1+0x1c],rdx
    cmp r9,0x8
    je 3
    mov edx,0x8
    xor r14d,r14d
0:
    mov r15,QWORD PTR [r10+r14*1]
    mov QWORD PTR [rax+r14*1+0x24],r15
    mov r14,rdx
    add rdx,0x8
    cmp rdx,r9
    jb 0
    jmp 3
1:
    cmp r9,0x3
    jbe 2
    mov edx,DWORD PTR [r10]
    mov DWORD PTR [rax+0x24],edx
    mov edx,DWORD PTR [r9+r10*1-0x4]
    mov DWORD PTR [rax+r9*1+0x20],edx
    jmp 3
2:
    movzx edx,BYTE PTR [r10]
    mov BYTE PTR [rax+0x24],dl
    mov rdx,r9
    shr rdx,1
    movzx ebp,BYTE PTR [r10+rdx*1]
    mov BYTE PTR [rax+rdx*1+0x24],bpl
    movzx edx,BYTE PTR [r10+r9*1-0x1]
    mov BYTE PTR [rax+r9*1+0x23],dl
3:
    add r9,0x13
    shr r9,0x4
    add r9,0x2
    lea edx,[r9+0x3]
    shr edx,0x2
    movzx r10d,r11w
    shl r10,0x28
    movabs r14,0x800000000
    or r14,r10
    mov r10d,DWORD PTR [rsi+0xe4]
    or r10,0x8000000
    or r9,QWORD PTR [rsi+0xa0]
    or r9,r14
    bswap r9
    mov QWORD PTR [rax],r9
    mov QWORD PTR [rax+0x8],r10
    or r10d,edx
    or r10,r14
    mov r9,QWORD PTR [rsi+0x80]
    and edi,ecx
    shl rdi,0x4
    mov QWORD PTR [r9+rdi*1],r8
    mov QWORD PTR [r9+rdi*1+0x8],r10
    lea r8d,[r11+rdx*1]
    inc ecx
    lea edi,[rdx-0x1]
    cmp edi,DWORD PTR [rsi+0xe8]
    jae 7
    mov rdi,QWORD PTR [rsi+0x40]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    je 7
    mov DWORD PTR [rsi+0xd8],r8d
    mov DWORD PTR [rsi+0xdc],ecx
    mov rdi,QWORD PTR [rsi+0x78]
    mov WORD PTR [rdi],cx
    mov rcx,QWORD PTR [rsi+0x50]
    movzx edi,r8w
    bswap edi
    mov DWORD PTR [rcx],edi
    sfence
    mov rdi,QWORD PTR [rsi+0x58]
    cmp edx,0x1
    jne 4
    movaps xmm0,XMMWORD PTR [rax]
    movaps xmm1,XMMWORD PTR [rax+0x10]
    movaps xmm2,XMMWORD PTR [rax+0x20]
    movaps xmm3,XMMWORD PTR [rax+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    jmp 5
4:
    mov r14,rsi
    mov rsi,rax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rsi,r14
5:
    sfence
    mov rax,QWORD PTR [rsi+0x60]
    xor QWORD PTR [rsi+0x58],rax
    mov BYTE PTR [rbx],0x1b
    jmp 8
6:
    mov r15,rsi
    mov rdi,rsi
    mov esi,r11d
    mov rax,rdx
    mov edx,ecx
    mov rcx,r8
    mov r8d,0x8
    mov r11,r9
    xor r9d,r9d
    push r11
    push r10
    push r14
    push rax
    call QWORD PTR [_ZN8mlx5_wqe5build52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov r8d,eax
    mov ecx,edx
    mov rsi,r15
7:
    mov rdi,rbx
    mov edx,r8d
    call QWORD PTR [_ZN8mlx5_wqe4post52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$13complete_slow]
8:
    mov rax,rbx
    add rsp,0x8
    pop rbx
    pop r14
    pop r15
    pop rbp
    ret
    mov rbx,rax
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4post52_$LT$impl$u20$mlx5_wqe..send..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
