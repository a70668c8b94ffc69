    push r15
    push r14
    push rbx
    mov r10,r8
    mov r14d,ecx
    mov rbx,rdi
    mov r8,QWORD PTR [rsp+0x20]
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
    mov eax,DWORD PTR [rsi+0xd0]
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
    xor edi,edi
0:
    mov r14,QWORD PTR [r10+rdi*1]
    mov QWORD PTR [rax+rdi*1+0x24],r14
    mov rdi,rdx
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
    movzx edi,BYTE PTR [r10+rdx*1]
    mov BYTE PTR [rax+rdx*1+0x24],dil
    movzx edx,BYTE PTR [r10+r9*1-0x1]
    mov BYTE PTR [rax+r9*1+0x23],dl
3:
    add r9,0x13
    shr r9,0x4
    add r9,0x2
    lea edx,[r9+0x3]
    shr edx,0x2
    movzx edi,r11w
    shl rdi,0x28
    movabs r10,0x800000000
    or r10,rdi
    or r9,QWORD PTR [rsi+0xa0]
    mov edi,DWORD PTR [rsi+0xe4]
    or r9,r10
    bswap r9
    or rdi,0x8000000
    mov QWORD PTR [rax],r9
    mov QWORD PTR [rax+0x8],rdi
    or edi,edx
    or rdi,r10
    mov r9,QWORD PTR [rsi+0x80]
    mov r10d,DWORD PTR [rsi+0xd0]
    and r10d,ecx
    shl r10,0x4
    mov QWORD PTR [r9+r10*1],r8
    mov QWORD PTR [r9+r10*1+0x8],rdi
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
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov r8d,eax
    mov ecx,edx
    mov rsi,r15
7:
    mov rdi,rbx
    mov edx,r8d
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
8:
    mov rax,rbx
    pop rbx
    pop r14
    pop r15
    ret
    mov rbx,rax
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
