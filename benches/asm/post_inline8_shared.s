    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r15,r8
    mov r12d,ecx
    mov rbx,rsi
    mov r14,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rsi+0x108],cl
    jne 10
0:
    mov r8,QWORD PTR [rsp+0x40]
    mov eax,DWORD PTR [rbx+0xd8]
    mov ecx,DWORD PTR [rbx+0xdc]
    mov rsi,QWORD PTR [rbx+0x40]
    mov esi,DWORD PTR [rsi]
    lea rdi,[r9-0x1]
    cmp rdi,QWORD PTR [rbx+0xa8]
    jae 7
    test sil,0x1
    je 7
    cmp DWORD PTR [rbx+0xe0],eax
    js 7
    mov edi,DWORD PTR [rbx+0xd0]
    mov esi,edi
    and esi,eax
    shl rsi,0x6
    add rsi,QWORD PTR [rbx+0x38]
    bswap rdx
    bswap r12d
    mov QWORD PTR [rsi+0x10],rdx
    mov QWORD PTR [rsi+0x18],r12
    mov edx,r9d
    or edx,0x80000000
    bswap edx
    mov DWORD PTR [rsi+0x20],edx
    cmp r9,0x7
    jbe 2
    mov rdx,QWORD PTR [r9+r15*1-0x8]
    mov QWORD PTR [rsi+r9*1+0x1c],rdx
    cmp r9,0x8
    je 4
    mov edx,0x8
    xor r10d,r10d
1:
    mov r11,QWORD PTR [r15+r10*1]
    mov QWORD PTR [rsi+r10*1+0x24],r11
    mov r10,rdx
    add rdx,0x8
    cmp rdx,r9
    jb 1
    jmp 4
2:
    cmp r9,0x3
    jbe 3
    mov edx,DWORD PTR [r15]
    mov DWORD PTR [rsi+0x24],edx
    mov edx,DWORD PTR [r9+r15*1-0x4]
    mov DWORD PTR [rsi+r9*1+0x20],edx
    jmp 4
3:
    movzx edx,BYTE PTR [r15]
    mov BYTE PTR [rsi+0x24],dl
    mov rdx,r9
    shr rdx,1
    movzx r10d,BYTE PTR [r15+rdx*1]
    mov BYTE PTR [rsi+rdx*1+0x24],r10b
    movzx edx,BYTE PTR [r15+r9*1-0x1]
    mov BYTE PTR [rsi+r9*1+0x23],dl
4:
    add r9,0x13
    shr r9,0x4
    add r9,0x2
    lea edx,[r9+0x3]
    shr edx,0x2
    movzx r10d,ax
    shl r10,0x28
    movabs r11,0x800000000
    or r11,r10
    mov r10d,DWORD PTR [rbx+0xe4]
    or r10,0x8000000
    or r9,QWORD PTR [rbx+0xa0]
    or r9,r11
    bswap r9
    mov QWORD PTR [rsi],r9
    mov QWORD PTR [rsi+0x8],r10
    or r10d,edx
    or r10,r11
    mov r9,QWORD PTR [rbx+0x80]
    and edi,ecx
    shl rdi,0x4
    mov QWORD PTR [r9+rdi*1],r8
    mov QWORD PTR [r9+rdi*1+0x8],r10
    add eax,edx
    inc ecx
    lea edi,[rdx-0x1]
    cmp edi,DWORD PTR [rbx+0xe8]
    jae 8
    mov rdi,QWORD PTR [rbx+0x40]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    je 8
    mov DWORD PTR [rbx+0xd8],eax
    mov DWORD PTR [rbx+0xdc],ecx
    mov rdi,QWORD PTR [rbx+0x78]
    mov WORD PTR [rdi],cx
    mov rcx,QWORD PTR [rbx+0x50]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx],eax
    sfence
    mov rdi,QWORD PTR [rbx+0x58]
    cmp edx,0x1
    jne 5
    movaps xmm0,XMMWORD PTR [rsi]
    movaps xmm1,XMMWORD PTR [rsi+0x10]
    movaps xmm2,XMMWORD PTR [rsi+0x20]
    movaps xmm3,XMMWORD PTR [rsi+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    jmp 6
5:
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
6:
    sfence
    mov rax,QWORD PTR [rbx+0x60]
    xor QWORD PTR [rbx+0x58],rax
    mov BYTE PTR [r14],0x1b
    jmp 9
7:
    mov rdi,rbx
    mov esi,eax
    mov rax,rdx
    mov edx,ecx
    mov rcx,r8
    mov r8d,0x8
    mov r10,r9
    xor r9d,r9d
    push r10
    push r15
    push r12
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov ecx,edx
8:
    mov rdi,r14
    mov rsi,rbx
    mov edx,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
9:
    mov BYTE PTR [rbx+0x108],0x0
    mov rax,r14
    add rsp,0x8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
10:
    mov rdi,rbx
    mov r13,r9
    mov rbp,rdx
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov rdx,rbp
    mov r9,r13
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 11
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
11:
    mov BYTE PTR [rbx+0x108],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
